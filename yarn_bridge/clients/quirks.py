"""What differs between Hadoop releases, in one table. Each line was seen on the daemons of that release unless it
says "read": then it is from Hadoop's source or release notes and the adapter proves it before it relies on it.

| release     | differs by                                                                                           |
|-------------|------------------------------------------------------------------------------------------------------|
| 3.2.0       | no container signal, no decommission by instance, no scheduler-conf version; GPUs must be in         |
|             | capacity-scheduler.xml too                                                                           |
| 3.2.1 (read)| decommission by instance                                                                             |
| 3.3.0 (read)| container signal; service state from its containers                                                  |
| 3.3.6       | as above, seen; node attributes in a service's placement refused (400 "Tag(s) not specified")        |
| 3.4.0 (read)| node attributes in a service's placement                                                             |
| 3.4.2       | as above, seen                                                                                       |
| 3.5.0       | never tried: its web applications were rewritten                                                     |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: releases on whose daemons the tests of this adapter run
TRIED = ((3, 3, 6), (3, 4, 2))


@dataclass(frozen=True, slots=True)
class Quirks:
    release: tuple[int, int, int]
    tried: bool  #: the adapter's tests run against this release
    pin_by_attribute: bool  #: a service's component may ask for node attributes
    container_signal: bool  #: POST /containers/ID/signal
    conf_version: bool  #: GET /scheduler-conf/version and POST /validate
    gpu_in_scheduler_xml: bool  #: yarn.resource-types must be in capacity-scheduler.xml too


def quirks_of(version: str) -> Quirks:
    """The table's line for a version as the ResourceManager tells it ("3.4.2", "3.3.6.4-vendor")."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    release = (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)
    return Quirks(
        release=release,
        tried=release in TRIED,
        pin_by_attribute=release >= (3, 4, 0),
        container_signal=release >= (3, 3, 0),
        conf_version=release >= (3, 3, 0),
        gpu_in_scheduler_xml=release < (3, 2, 1),
    )
