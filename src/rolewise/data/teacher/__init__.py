"""The teacher: a model behind any OpenAI-compatible endpoint that writes rows, each answer paid for once.

    from rolewise.data.teacher import Accepted, Teacher, TeacherConfig, load_prompt

    prompt = load_prompt("decompose")
    requests = [prompt.request({"prompt": text}, meta={"id": id}) for id, text in rows]
    with Teacher(TeacherConfig(model="qwen3-32b", base_url="http://localhost:8000/v1"), "answers.jsonl") as teacher:
        print(teacher.estimate(requests))
        for result in teacher.answers(requests):
            if isinstance(result, Accepted):
                keep(result.request.meta["id"], result.value)     # {"system", "user", "data"}
            else:
                reject(result.request.meta["id"], result.reason, result.detail, result.raw)
        print(teacher.totals)

The key comes from the environment. A run that was killed goes on where it was: it repeats no call that had an answer.
Needs the extra `teacher`.
"""

from rolewise.data.teacher.cache import AnswerCache
from rolewise.data.teacher.config import TeacherConfig
from rolewise.data.teacher.prompt import Prompt, load_prompt, prompt_names
from rolewise.data.teacher.requests import Accepted, Answer, Reason, Rejected, Request, Result
from rolewise.data.teacher.teacher import Teacher
from rolewise.data.teacher.totals import Estimate, Price, Totals

__all__ = [
    "Accepted",
    "Answer",
    "AnswerCache",
    "Estimate",
    "Price",
    "Prompt",
    "Reason",
    "Rejected",
    "Request",
    "Result",
    "Teacher",
    "TeacherConfig",
    "Totals",
    "load_prompt",
    "prompt_names",
]
