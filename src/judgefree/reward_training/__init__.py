"""The stage `reward-model`: Bradley-Terry training on preference pairs, then the value head's fit."""
