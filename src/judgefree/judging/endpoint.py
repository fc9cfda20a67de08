"""A judge behind an OpenAI-compatible endpoint: retries, bounded concurrency, answers kept on disk, tokens and cost.

What may pass (no connection, a time-out, 408, 409, 425, 429, 5xx, a reply that is no chat completion) is tried again up to
`attempts` times; a reply without a verdict or a score once more, for it costs money each time. A request that the server
refuses (another 4xx) has no answer. What no request of this judge will survive ends the call with a JudgefreeError: a
refused key, a wrong address, or the first GIVE_UP requests all failing.

The key comes from the environment, is written nowhere, and is blanked out in everything that the server says.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from judgefree.config_judges import EndpointJudge
from judgefree.errors import JudgefreeError, MayPass, first_line
from judgefree.files import canonical_json, sha256_bytes
from judgefree.judging.answers import Answer, Answers
from judgefree.judging.judges import Bill
from judgefree.judging.words import Reply, WordsJudge

GIVE_UP = 16
ANSWERS = Path(".work") / "judges" / "answers.sqlite"  # below the project's folder

_PASSING = (408, 409, 425, 429)
_UNREADABLE = 2  # replies without an answer that one request is worth
_SHOWN = 200  # characters of what a server says
_LONGEST_WAIT_S = 60.0

log = logging.getLogger(__name__)


def endpoint_judge(settings: EndpointJudge, texts: dict[str, str], root: Path) -> WordsJudge:
    """The judge, with its answers kept below the project's folder. Raises JudgefreeError for a key that is not there."""
    return WordsJudge(Endpoint(settings, Answers(root / ANSWERS)), texts)


class _Again(Exception):
    """A fault that may pass. wait: seconds that the server asks for."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class _Refused(Exception):
    """This request will not be answered."""


class _Stopped(Exception):
    """Another request has ended all."""


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """What is read of a reply's body."""

    choices: list[_Choice]
    usage: _Usage | None = None


class Endpoint:
    """Implements `words.Ask`."""

    def __init__(self, settings: EndpointJudge, answers: Answers) -> None:
        self.settings = settings
        self.answers = answers
        self._unmetered = False
        self._key = _key(settings)
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=settings.timeout_s,
            limits=httpx.Limits(max_connections=settings.concurrency),
        )

    def __call__(self, prompts: Sequence[str], read: Callable[[str], Any]) -> list[Reply]:
        keys = [sha256_bytes(canonical_json([self.settings.url, self._body(prompt)]).encode()) for prompt in prompts]
        wanted = dict(zip(keys, prompts, strict=True))  # equal prompts are asked once
        found: dict[str, Reply] = {}
        for key in wanted:
            if (answer := self.answers.find(key)) and read(answer.text) is not None:
                found[key] = Reply(answer.text, bill=self._bill(answer, cached=True))
        found |= self._fetch({key: prompt for key, prompt in wanted.items() if key not in found}, read)
        replies, billed = [], set()
        for key in keys:
            reply = found[key]
            replies.append(Reply(reply.text, reply.why, Bill(cached=True)) if key in billed else reply)
            billed.add(key)
        return replies

    def _fetch(self, prompts: dict[str, str], read: Callable[[str], Any]) -> dict[str, Reply]:
        """Answers that are not kept yet, each kept as soon as it is there: a stop loses only those under way."""
        if not prompts:
            return {}
        fetched: dict[str, Reply] = {}
        stop = threading.Event()
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            running = {pool.submit(self._one, prompt, read, stop): key for key, prompt in prompts.items()}
            try:
                for future in as_completed(running):
                    with suppress(_Stopped):  # whatever stopped it is still to come
                        fetched[running[future]] = self._kept(running[future], *future.result())
                        self._worth_going_on(fetched)
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
        return fetched

    def _kept(self, key: str, answer: Answer, why: str) -> Reply:
        if why:
            return Reply(None, why, self._bill(answer))
        self.answers.keep(key, answer)
        return Reply(answer.text, bill=self._bill(answer))

    def _worth_going_on(self, fetched: dict[str, Reply]) -> None:
        if len(fetched) == GIVE_UP and all(reply.text is None for reply in fetched.values()):
            why = next(iter(fetched.values())).why
            raise MayPass(
                f"the judge {self.settings.model} at {self.settings.url} answered none of {GIVE_UP} requests: {why}",
                "see that the server is up and replies as the prompts ask, then repeat",
            )

    def _one(self, prompt: str, read: Callable[[str], Any], stop: threading.Event) -> tuple[Answer, str]:
        """An answer, or why there is none; with the tokens of all replies, for they are paid for."""
        tokens, unreadable, why = (0, 0), 0, ""
        for attempt in range(1, self.settings.attempts + 1):
            if stop.is_set():
                raise _Stopped
            wait = min(self.settings.backoff_s * 2 ** (attempt - 1), _LONGEST_WAIT_S)
            try:
                text, usage = self._post(prompt)
                tokens = (tokens[0] + usage.prompt_tokens, tokens[1] + usage.completion_tokens)
                if read(text) is not None:
                    return Answer(text, *tokens), ""
                unreadable, why = unreadable + 1, f"no answer in the reply {self._blank(text[-80:])!r}"
                if unreadable == _UNREADABLE:
                    break
            except _Again as fault:
                why, wait = str(fault), min(max(wait, fault.wait), _LONGEST_WAIT_S)
            except _Refused as fault:
                return Answer("", *tokens), str(fault)
            except JudgefreeError:
                stop.set()  # before this thread takes the next request
                raise
            if attempt < self.settings.attempts and stop.wait(wait):
                break
        return Answer("", *tokens), why

    def _post(self, prompt: str) -> tuple[str, _Usage]:
        try:
            response = self._client.post(f"{self.settings.url}/chat/completions", json=self._body(prompt))
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _Again(self._blank(f"{type(error).__name__}: {first_line(error)}")) from error
        if response.status_code != 200:
            self._refuse(response)
        try:
            completion = _Completion.model_validate_json(response.content)
        except ValidationError as error:
            raise _Again(f"no chat completion in the reply {self._blank(response.text[:_SHOWN])!r}") from error
        if not completion.choices:
            raise _Again("a chat completion without choices")
        if completion.usage is None and not self._unmetered:
            self._unmetered = True
            log.warning("%s does not tell the tokens it used: cost is understated", self.settings.url)
        return completion.choices[0].message.content or "", completion.usage or _Usage()

    def _refuse(self, response: httpx.Response) -> None:
        """Raises what a status other than 200 means."""
        status, url = response.status_code, self.settings.url
        why = f"status {status}: {self._blank(response.text[:_SHOWN])!r}"
        if status in _PASSING or status >= 500:
            raise _Again(why, _seconds(response.headers.get("retry-after")))
        if status in (401, 402, 403):
            variable = self.settings.key_variable
            raise JudgefreeError(
                f"the judge at {url} refuses the key: {why}",
                f"put a valid one into {variable}" if variable else "name the variable that holds one in key_variable",
            )
        if status < 400 or status in (404, 405):
            raise JudgefreeError(
                f"{url}/chat/completions does not serve {self.settings.model}: {why}",
                "correct the judge's url or model",
            )
        raise _Refused(why)

    def _body(self, prompt: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        return {"model": self.settings.model, "messages": messages, **self.settings.request}

    def _bill(self, answer: Answer, cached: bool = False) -> Bill:
        price = self.settings.price
        cost = (
            (answer.prompt_tokens * price.prompt + answer.completion_tokens * price.completion) / 1e6 if price else 0.0
        )
        return Bill(answer.prompt_tokens, answer.completion_tokens, cost, cached)

    def _blank(self, text: str) -> str:
        """What a server says, without the key, should it repeat that."""
        return text.replace(self._key, "***") if self._key else text


def _key(settings: EndpointJudge) -> str | None:
    """Raises JudgefreeError, without what the variable holds, where that is no key."""
    if settings.key_variable is None:
        return None
    key = os.environ.get(settings.key_variable, "").strip()
    if not key:
        raise JudgefreeError(
            f"the judge {settings.model} at {settings.url} needs a key, and {settings.key_variable} is not set",
            f"export {settings.key_variable}=... before the command; it is written nowhere",
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise JudgefreeError(f"what {settings.key_variable} holds is no key", "set it to the key alone, without spaces")
    return key


def _seconds(header: str | None) -> float:
    """Of a Retry-After header; 0 for none and for its form as a date."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0
