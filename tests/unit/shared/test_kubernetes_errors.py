"""What an error answer says, whoever made its body."""

import httpx
import pytest

from shared.kubernetes_errors import Answer


@pytest.mark.parametrize(
    "details", ["text", ["list"], {"causes": "text"}, {"causes": ["text"]}, {"causes": [{"reason": "A"}]}], ids=str
)
def test_an_error_body_of_a_gateway_is_an_answer_whatever_its_details_are(details):
    answer = Answer.of(httpx.Response(500, json={"message": "m", "details": details}))
    assert answer.status == 500
