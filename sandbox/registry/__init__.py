"""A Model Registry over HTTP, without a database: faithful to the real one, traps included, and faulty on demand."""

from sandbox.registry.records import Registry
from sandbox.registry.server import Options, RegistryServer, serve
from sandbox.registry.switches import PROFILES, Switches

__all__ = ["PROFILES", "Options", "Registry", "RegistryServer", "Switches", "serve"]
