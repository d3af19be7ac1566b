"""The systems by name."""

from __future__ import annotations

from .base import Options, System
from .gluster import GlusterEc, GlusterReplica
from .juicefs import JuiceFs
from .moosefs import MooseFs
from .passthrough import Passthrough
from .seaweedfs import SeaweedFs
from .shoal import Shoal

ALL: dict[str, type[System]] = {kind.name: kind for kind in (Shoal, GlusterEc, GlusterReplica, MooseFs, SeaweedFs,
                                                             JuiceFs, Passthrough)}
