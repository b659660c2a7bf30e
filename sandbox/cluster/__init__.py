"""The sandbox's Kubernetes API: InferenceServices and what stands around them, over HTTP, with a played KServe.

    server.py      serve(): everything wired together                                   (shell)
    api.py         routes: path, authentication, verbs, answers                         (shell)
    watch.py       the watch stream: events, bookmarks, slow readers                     (shell)
    housekeeping.py  definitions become served, the garbage collector lets go             (shell)
    controller.py  the played KServe's timers; play.py feeds a capture                  (shell)
    kserve.py      what a KServe controller writes next; admission.py its webhooks       (pure)
    rules.py       create, update, patch, delete: generation, finalizers, conflicts      (pure)
    store.py       objects, resourceVersions, bounded history                            (pure)
    patch.py selectors.py validation.py listing.py table.py resources.py discovery.py    (pure)

Left out on purpose: managedFields (server-side apply merges without field ownership), dry run, protobuf answers, the
collection of owned objects, aggregated discovery, schemas of custom kinds, admission other than KServe's.
"""

from sandbox.cluster.server import ClusterSandbox, Settings, serve

__all__ = ["ClusterSandbox", "Settings", "serve"]
