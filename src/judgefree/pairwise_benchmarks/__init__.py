"""AlpacaEval 2 and Arena-Hard v2: a model's answers to a benchmark's prompts, judged against a baseline's."""
