"""No userinfo, query or fragment survives in a URI, broken ones included; what is none of those stays."""

import pytest

from shared.uris import clean_image, clean_text, clean_uri


@pytest.mark.parametrize(
    ("uri", "clean"),
    [
        pytest.param("s3://models/iris/v1", "s3://models/iris/v1", id="nothing to take"),
        pytest.param("pvc://claim/path", "pvc://claim/path", id="pvc"),
        pytest.param("hf://org/model@main", "hf://org/model@main", id="an at sign in a path is no userinfo"),
        pytest.param("https://host:8443/a", "https://host:8443/a", id="a port is no password"),
        pytest.param("https://host:/a", "https://host:/a", id="an empty port"),
        pytest.param("https://host:80\\a", "https://host:80\\a", id="a backslash ends the authority"),
        pytest.param("https://[::1]/a", "https://[::1]/a", id="IPv6"),
        pytest.param("https://[::1]:80/a", "https://[::1]:80/a", id="IPv6 and port"),
        pytest.param("https://[fd00::ab]/a", "https://[fd00::ab]/a", id="IPv6 that ends in letters"),
        pytest.param("https://u:p@host/a?sig=s#f", "https://host/a", id="userinfo, query, fragment"),
        pytest.param("https://u@host/a", "https://host/a", id="user alone"),
        pytest.param("https://u:p@host:8443/a", "https://host:8443/a", id="userinfo and port"),
        pytest.param("https://u:p@[::1]:80/a", "https://[::1]:80/a", id="userinfo and IPv6"),
        pytest.param("https://host?x=1", "https://host", id="query without path"),
        pytest.param("https://host#x", "https://host", id="fragment without path"),
        pytest.param("https://u:p@host", "https://host", id="no path"),
        pytest.param("u:p@host/a?x", "host/a", id="no scheme"),
        pytest.param("sub/path?x=1", "sub/path", id="a path with a query"),
        pytest.param("", "", id="empty"),
        pytest.param("://", "://", id="separator alone"),
        pytest.param("https://u%40x:p%2F@host/a", "https://host/a", id="escaped userinfo"),
    ],
)
def test_a_uri_keeps_scheme_host_and_path_only(uri, clean):
    assert clean_uri(uri) == clean


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param("https://u:SECRET@host/a", id="as it should be"),
        pytest.param("https://u:SE@SECRET@host/a", id="at sign"),
        pytest.param("https://u:SE/SECRET@host/a", id="slash"),
        pytest.param("https://u:SECRET/SECRET@host/a", id="slash, both halves"),
        pytest.param("https://u:SE?SECRET@host/a", id="question mark"),
        pytest.param("https://u:SECRET?x@host/a", id="question mark, first half"),
        pytest.param("https://u:SE#SECRET@host/a", id="hash"),
        pytest.param("https://u:SE SECRET@host/a", id="blank"),
        pytest.param("https://u:SE\\SECRET@host/a", id="backslash"),
        pytest.param("https://u:x@SECRET/SECRET@host/a", id="at sign, then slash"),
        pytest.param("https://u:x/SECRET@SECRET@host/a", id="slash, then at sign"),
        pytest.param("https://u:x@SECRET?SECRET@host/a", id="at sign, then question mark"),
        pytest.param("https://u:SECRET", id="nothing behind it"),
        pytest.param("https://u:SECRET/", id="only a slash behind it"),
        pytest.param("https://host/a?SECRET", id="query"),
        pytest.param("https://host/a?a=1?SECRET", id="two question marks"),
        pytest.param("https://host/a#x?SECRET", id="question mark in the fragment"),
        pytest.param("https://host/a?x=https://u:SECRET@h/b", id="a URI in the query"),
    ],
)
def test_a_broken_uri_loses_more_rather_than_less(uri):
    assert "SECRET" not in clean_uri(uri)
    assert "SECRET" not in clean_text(f"see {uri}") or " " in uri


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        pytest.param("no uri at all", "no uri at all", id="none"),
        pytest.param('{"url": "https://u:p@h/a?x", "n": 1}', '{"url": "https://h/a", "n": 1}', id="in JSON"),
        pytest.param("https://u:p@h/a,https://u:p@i/b", "https://h/a,https://i/b", id="two, with a comma"),
        pytest.param("https://h/a, then b@c", "https://h/a, then b@c", id="an at sign later in the text"),
        pytest.param("a<https://u:p@h/a>b", "a<https://h/a>b", id="in angle brackets"),
        pytest.param("jdbc:postgresql://u:p@h/db?password=x", "jdbc:postgresql://h/db", id="a scheme of two parts"),
        pytest.param("git+ssh://u:p@h/a", "git+ssh://h/a", id="a scheme with a plus"),
        pytest.param("https://u:p,q;r'@h/a", "https://h/a", id="marks that userinfo may hold"),
        pytest.param("https://h/a?x=1,sig=2;z='3'", "https://h/a", id="marks that a query may hold"),
    ],
)
def test_every_uri_in_a_text_is_cleaned(text, clean):
    assert clean_text(text) == clean


def test_a_scheme_may_follow_any_character():
    assert clean_text("1https://u:p@h/a") == "1https://h/a"


@pytest.mark.parametrize("text", ["a" * 1_200_000, "://" * 400_000, "://a" * 300_000, "://" + "a" * 1_200_000])
def test_a_long_text_is_read_in_linear_time(text):
    assert clean_text(text) == text  # quadratic, it would take minutes: the suite's timeout ends it


DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "clean"),
    [
        ("registry.example:5000/team/model:v1", "registry.example:5000/team/model:v1"),
        ("registry.example/model" + DIGEST, "registry.example/model" + DIGEST),
        ("u:p@registry.example/model" + DIGEST, "registry.example/model" + DIGEST),
        ("u:p@registry.example/model:v1", "registry.example/model:v1"),
        ("https://u:p@registry.example/model?token=x", "https://registry.example/model"),
        ("registry.example/model" + DIGEST + "?token=x", "registry.example/model" + DIGEST),
        ("registry.example/model" + DIGEST + "@x", "registry.example/model" + DIGEST),
    ],
)
def test_an_image_keeps_its_digest_and_loses_its_credentials(image, clean):
    assert clean_image(image) == clean
