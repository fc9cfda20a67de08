"""The one exception that a user is meant to read: what is wrong, where, and how to mend it."""


class JudgefreeError(Exception):
    """A fault in the input, the settings or the machine's state, with its remedy.

    The command line prints both parts and ends with status 2; everything else that escapes is a defect and keeps its
    traceback.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem}\n  fix: {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix


class PromptTooLong(JudgefreeError):
    """A prompt of more tokens than `training.max_prompt_tokens`. A method whose prompts hold completions may leave such
    a turn out and count it."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line; the name of its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class MayPass(JudgefreeError):
    """A fault that may be gone when the same is tried again, such as a network that does not answer: status 75."""
