"""What is told of the exchanges with the registry: a log line, counters, spans."""

import logging

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from consumer.requests.exchange import Exchanger, Instruments, Outgoing
from shared.errors import TransientError
from tests.unit.consumer.requests.registry_script import ASK, BASE, FOUND, Script, error, ok, plenty


async def test_announced_end_of_the_version_is_logged_once(caplog):
    def announced(_: httpx.Request) -> httpx.Response:
        response = ok(FOUND)
        response.headers.update({"Deprecation": "true", "Sunset": "Sat, 01 Mar 2027 00:00:00 GMT"})
        return response

    client = Script(announced, announced, announced).client()
    with caplog.at_level(logging.WARNING, "consumer"):
        for _ in range(3):
            await client.call(ASK, plenty)
    (line,) = caplog.records
    assert line.sunset == "Sat, 01 Mar 2027 00:00:00 GMT"
    assert line.api_version == "v1alpha3"


async def test_each_exchange_is_counted_by_method_and_outcome():
    script = Script(ok(FOUND), error(500, "x"), httpx.ConnectError("refused"))
    client = script.client()
    await client.call(ASK, plenty)
    for _ in range(2):
        with pytest.raises(TransientError):
            await client.call(ASK, plenty)
    assert script.exchanges == [("GET", "200"), ("GET", "500"), ("GET", "unreachable")]


async def test_span_of_an_exchange_names_route_and_status_and_travels_along():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script = Script(error(500, "x"))
    http = httpx.AsyncClient(base_url=BASE, transport=httpx.MockTransport(script))
    exchanger = Exchanger(http, Instruments(provider.get_tracer("t"), lambda *_: None))
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("reconcile") as parent:
        await exchanger.send(Outgoing(method="GET", path="/a/17", route="/a/{id}"), plenty)
    span = next(span for span in exporter.get_finished_spans() if span.name == "GET /a/{id}")
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.attributes["http.response.status_code"] == 500
    assert span.attributes["server.address"] == "registry.example"
    assert span.status.status_code is StatusCode.ERROR
    assert script.seen[0].headers["traceparent"].split("-")[2] == f"{span.context.span_id:016x}"
