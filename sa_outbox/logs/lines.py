"""Which line each observation is: its level and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from .. import observe
from ..settings import LogLevel

if TYPE_CHECKING:
    from ..observe import Observation

Level: TypeAlias = LogLevel
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""From the least important; what is as important as ``off`` does not exist."""

LINES: dict[type[Observation], tuple[Level, str]] = {
    observe.ConsumerStarted: ("info", "started"),
    observe.ConsumerStopping: ("info", "stopping"),
    observe.ConsumerStopped: ("info", "stopped"),
    observe.ConsumerAsleep: ("info", "asleep"),
    observe.ConsumerAwake: ("info", "awake"),
    observe.ListenerRegistered: ("info", "listener registered"),
    observe.ListenerChanged: ("info", "listener changed"),
    observe.ListenerOrphaned: ("warning", "listener orphaned"),
    observe.CopyFound: ("warning", "database is a copy"),
    observe.CopyAdopted: ("info", "copy adopted"),
    observe.PartitionsDiffer: ("warning", "partitions differ"),
    observe.LeaseClaimed: ("info", "lease claimed"),
    observe.RangeTaken: ("debug", "range taken"),
    observe.LeaseReleased: ("info", "lease released"),
    observe.LeaseDropped: ("warning", "lease dropped"),
    observe.CommitsLost: ("error", "the database has lost commits"),
    observe.LeasesKept: ("debug", "leases kept"),
    observe.Notified: ("debug", "notified"),
    observe.Woken: ("debug", "woken"),
    observe.HorizonRead: ("debug", "horizon read"),
    observe.HorizonHeld: ("warning", "horizon held"),
    observe.IdsNotDrawn: ("error", "ids not drawn"),
    observe.BatchRead: ("debug", "batch read"),
    observe.DeliveryStarted: ("debug", "delivery started"),
    observe.AttemptFailed: ("warning", "attempt failed"),
    observe.DeliverySettled: ("debug", "settled"),
    observe.BatchSettled: ("debug", "batch settled"),
    observe.EventsAdded: ("debug", "events added"),
    observe.DeadLettered: ("error", "dead letter"),
    observe.AlertsSwallowed: ("error", "alerts swallowed"),
    observe.BacklogMeasured: ("debug", "backlog measured"),
    observe.CaughtUp: ("debug", "caught up"),
    observe.SuspectAttempted: ("warning", "suspect attempted"),
    observe.Ticked: ("info", "ticked"),
    observe.PartitionMade: ("info", "partition made"),
    observe.PartitionDropped: ("info", "partition dropped"),
    observe.CatchAllEmptied: ("warning", "catch-all emptied"),
    observe.RetentionHeld: ("warning", "retention held"),
    observe.RetentionWaits: ("warning", "retention waits"),
    observe.RetentionRefused: ("warning", "retention refused"),
    observe.RowsPurged: ("info", "rows purged"),
    observe.EventsGone: ("warning", "events gone"),
    observe.DatabaseAway: ("warning", "database away"),
    observe.DatabaseBack: ("info", "database back"),
    observe.RelayAway: ("warning", "relay away"),
    observe.RelayBack: ("info", "relay back"),
    observe.EndpointLeftOut: ("error", "endpoint left out"),
    observe.EndpointDisabled: ("error", "endpoint disabled"),
    observe.Listening: ("info", "listening"),
    observe.LoopBlocked: ("warning", "loop blocked"),
    observe.HandlerIgnoredCancel: ("error", "handler ignored cancel"),
    observe.HandlerReturned: ("warning", "handler returned a value"),
}
"""Every observation with its level and text; its fields become the line's."""
