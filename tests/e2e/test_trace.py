"""One trace from the watch event to the patch, through two processes and the broker, as a collector sees it."""

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sandbox.web import serve
from tests.e2e.pipeline import Pipeline, isvc
from tests.eventually import eventually


class Collector:
    """Takes traces over OTLP/HTTP. Spans are (trace id, span id, parent id, service, name)."""

    def __init__(self):
        self.spans = []

    async def take(self, request):
        exported = ExportTraceServiceRequest.FromString(await request.read())
        for resource in exported.resource_spans:
            attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            self.spans += [
                (span.trace_id, span.span_id, span.parent_span_id, attributes["service.name"], span.name)
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        return web.Response()

    def path_to(self, prefix):
        """Return services and names from the root to the first span whose name starts so."""
        by_id = {span_id: (parent, service, name) for _, span_id, parent, service, name in self.spans}
        at = next((span_id for _, span_id, _, _, name in self.spans if name.startswith(prefix)), b"")
        path = []
        while at in by_id:
            at, service, name = by_id[at]
            path.append((service, name.split(" ")[0]))
        return path[::-1]


async def test_a_patch_belongs_to_the_trace_of_the_change_that_caused_it(tmp_path, guard):
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    async with serve(app) as url:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with Pipeline(tmp_path, guard, environ=environ) as pipeline:
            pipeline.cluster.create(
                isvc("traces/iris", model="1", annotations={"serving.kserve.io/deploymentMode": "Standard"})
            )
            # A span is exported when it ends, a parent after its children.
            await eventually(
                lambda: len(collector.path_to("PATCH /apis/serving.kserve.io")) >= 3, "the patch is traced"
            )
    assert collector.path_to("PATCH /apis/serving.kserve.io") == [
        ("isvc-sync-producer", "send"),
        ("isvc-sync-consumer", "process"),
        ("isvc-sync-consumer", "PATCH"),
    ]
