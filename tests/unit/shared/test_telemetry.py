"""Trace context in headers, a real scrape, a dead collector at shutdown, and log lines without secrets."""

import asyncio
import io
import json
import logging
import socket
import time

import pytest
from opentelemetry.trace import get_current_span

from shared.logs import LogSettings, fields, redact, set_up_logging
from shared.telemetry import Telemetry, TelemetrySettings, extract, inject


@pytest.fixture
def telemetry():
    made = Telemetry(TelemetrySettings(), role="producer")
    yield made
    assert made.shutdown()


@pytest.fixture
def log():
    """Set logging up as the process does, into a buffer; put pytest's own set-up back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    streams: list[io.StringIO] = []

    def start(log_format: str, level: str = "INFO") -> io.StringIO:
        streams.append(io.StringIO())
        set_up_logging(LogSettings(log_format=log_format, log_level=level), streams[0])
        return streams[0]

    yield start
    root.handlers[:] = before
    root.setLevel(level)


def fail(error):
    raise error


def span_of(context):
    return get_current_span(context).get_span_context()


def test_a_trace_goes_through_message_headers_in_lower_case(telemetry):
    headers: dict[str, str] = {"ce-id": "1"}
    with telemetry.tracer.start_as_current_span("send") as span:
        inject(headers)
    assert set(headers) == {"ce-id", "traceparent"}
    assert span_of(extract(headers)).trace_id == span.get_span_context().trace_id


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_headers_are_read_in_whatever_case(name):
    context = extract({name: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    assert span_of(context).trace_id == 0x0AF7651916CD43DD8448EB211C80319C


def test_tracestate_is_carried_on(telemetry):
    incoming = extract(
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "TraceState": "vendor=1"}
    )
    headers: dict[str, str] = {}
    with telemetry.tracer.start_as_current_span("process", incoming):
        inject(headers)
    assert headers["tracestate"] == "vendor=1"


@pytest.mark.parametrize("headers", [None, {}, {"traceparent": "rubbish"}])
def test_no_trace_in_the_headers_is_no_trace_even_inside_a_span(telemetry, headers):
    with telemetry.tracer.start_as_current_span("outer"):
        assert not span_of(extract(headers)).is_valid


def test_a_scrape_has_the_names_that_the_documentation_uses(telemetry):
    metrics = telemetry.metrics
    metrics.events.add(2, {"result": "applied"})
    metrics.watch_connected.set(1, {"kind": "isvc"})
    metrics.sync_latency.record(0.3)
    metrics.process_duration.record(0.3)
    metrics.sent_messages.add(1, {"messaging.system": "nats"})
    metrics.observe_watch_age(lambda: 3.5)
    content_type, body = telemetry.scrape()
    lines = body.decode().splitlines()
    assert content_type.startswith("text/plain; version=0.0.4")
    assert 'isvc_sync_events_total{result="applied"} 2.0' in lines
    assert 'isvc_sync_watch_connected{kind="isvc"} 1.0' in lines
    assert 'isvc_sync_sync_latency_seconds_bucket{le="0.25"} 0.0' in lines
    assert 'isvc_sync_sync_latency_seconds_bucket{le="0.5"} 1.0' in lines
    assert "messaging_process_duration_seconds_count 1.0" in lines
    assert 'messaging_client_sent_messages_total{messaging_system="nats"} 1.0' in lines
    assert "isvc_sync_watch_last_event_age_seconds 3.5" in lines
    assert any(line.startswith("isvc_sync_build_info{") and 'role="producer"' in line for line in lines)
    assert any(line.startswith("target_info{") and 'service_name="isvc-sync-producer"' in line for line in lines)


def test_the_standard_variables_name_the_service(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-1")
    telemetry = Telemetry(TelemetrySettings(), role="consumer")
    body = telemetry.scrape()[1].decode()
    telemetry.shutdown()
    assert 'service_name="mine"' in body
    assert 'k8s_pod_name="pod-1"' in body


def test_an_age_that_is_unknown_is_not_shown(telemetry):
    telemetry.metrics.observe_watch_age(lambda: None)
    assert b"last_event_age_seconds " not in telemetry.scrape()[1]


def test_a_collector_that_never_answers_does_not_hold_up_the_end():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        telemetry = Telemetry(TelemetrySettings(otel_exporter_otlp_endpoint=url), role="producer")
        for _ in range(600):  # more than the queue
            telemetry.tracer.start_span("send").end()
        began = time.monotonic()
        telemetry.shutdown(deadline_s=0.3)
        assert time.monotonic() - began < 1.0
        silent.settimeout(5)
        silent.accept()[0].close()  # it did try


def test_text_lines_hold_message_and_fields(log):
    stream = log("text")
    logging.getLogger("shared.x").info("record created", extra={"object": "isvc/a/b", "reason": "two words"})
    assert stream.getvalue().endswith('INFO    shared.x: record created object=isvc/a/b reason="two words"\n')


def test_json_lines_hold_message_fields_and_trace(log, telemetry):
    stream = log("json")
    with telemetry.tracer.start_as_current_span("process") as span:
        logging.getLogger("shared.x").warning("odd", extra={"object": "isvc/a/b"})
    entry = json.loads(stream.getvalue())
    assert entry["message"] == "odd"
    assert entry["object"] == "isvc/a/b"
    assert entry["trace_id"] == f"{span.get_span_context().trace_id:032x}"


def test_what_is_logged_inside_has_the_fields_of_where_it_is(log):
    stream = log("json")
    with fields(member="pod-0"), fields(object="isvc/a/b", sequence=7):
        logging.getLogger("shared.x").info("deep", extra={"sequence": 8})
    logging.getLogger("shared.x").info("outside")
    deep, outside = map(json.loads, stream.getvalue().splitlines())
    assert (deep["member"], deep["object"], deep["sequence"]) == ("pod-0", "isvc/a/b", 8)
    assert not {"member", "object", "sequence"} & outside.keys()


async def test_two_tasks_do_not_see_each_others_fields(log):
    stream = log("json")

    async def work(number: int) -> None:
        with fields(sequence=number):
            await asyncio.sleep(0)
            logging.getLogger("shared.x").info("at work", extra={"own": number})

    await asyncio.gather(work(1), work(2))
    lines = map(json.loads, stream.getvalue().splitlines())
    assert {line["own"]: line["sequence"] for line in lines} == {1: 1, 2: 2}


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_credential_reaches_the_log_by_message_field_or_traceback(log, log_format):
    stream = log(log_format)
    try:
        fail(ValueError("GET https://me:hunter2@registry/x"))
    except ValueError:
        logging.getLogger("x").exception(
            "failed at nats://hunter2@broker", extra={"header": "Authorization: Bearer hunter2.hunter2"}
        )
    assert "hunter2" not in stream.getvalue()
    assert "https://***@registry/x" in stream.getvalue()
    if log_format == "json":
        assert "exception" in json.loads(stream.getvalue())


@pytest.mark.parametrize("text", ["http://host:80/a@b", "mail me@host", "bearer of news", "a/b@sha256:123"])
def test_redaction_leaves_alone_what_is_no_credential(text):
    assert redact(text) == text


def test_a_level_below_the_setting_is_not_logged(log):
    stream = log("text", "WARNING")
    logging.getLogger("shared.x").info("quiet")
    logging.getLogger("httpx").info("HTTP Request: GET")
    assert stream.getvalue() == ""


def test_trouble_with_the_collector_is_one_line_a_minute_without_a_traceback(log):
    stream = log("text")
    for _ in range(5):
        try:
            fail(ConnectionError())
        except ConnectionError:
            logging.getLogger("opentelemetry.exporter").exception("collector away")
    assert stream.getvalue().count("\n") == 1
