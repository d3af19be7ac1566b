"""The systems by name."""

from __future__ import annotations

from .base import Options, System
from .ganesha import Ganesha
from .gluster import GlusterEc, GlusterReplica
from .juicefs import JuiceFs
from .moosefs import MooseFs, MooseFsTwo
from .passthrough import Passthrough
from .seaweedfs import SeaweedFs
from .shoal import Shoal, ShoalMount

ALL: dict[str, type[System]] = {kind.name: kind for kind in (Shoal, ShoalMount, GlusterEc, GlusterReplica, Ganesha,
                                                             MooseFs, MooseFsTwo, SeaweedFs, JuiceFs, Passthrough)}
