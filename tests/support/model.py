"""What a session with an outbox should do, said as simply as it can be said.

An event lives in the scope (root, savepoint) it was added in. A scope that is released gives its
events to the scope around it; one that is rolled back takes them away. An entity that loses its
INSERT takes back the events recorded on it, those of a rolled back scope excepted that was
younger than the INSERT.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class ModelEvent:
    name: str
    entity: ModelEntity | None = None


@dataclass(eq=False)
class ModelEntity:
    name: str
    waiting: list[ModelEvent] = field(default_factory=list)
    """Events kept with the object, while it has no row and no session."""
    where: str = "transient"
    """transient, pending, persistent (flushed), detached, gone."""
    added_in: Scope | None = None
    """The scope that would undo its INSERT; None once it is committed."""


@dataclass(eq=False)
class Scope:
    parent: Scope | None = None
    events: list[ModelEvent] = field(default_factory=list)
    entities: list[ModelEntity] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.scope: Scope | None = None
        self.committed: list[ModelEvent] = []
        self.committed_entities: set[str] = set()
        self.order: dict[str, int] = {}

    def begin(self) -> Scope:
        if self.scope is None:
            self.scope = Scope()
        return self.scope

    def add(self, event: ModelEvent) -> None:
        self.order.setdefault(event.name, len(self.order))
        self.begin().events.append(event)

    def record(self, entity: ModelEntity, event: ModelEvent) -> None:
        self.order.setdefault(event.name, len(self.order))
        if entity.where in ("pending", "persistent"):
            self.add(event)
        else:
            entity.waiting.append(event)

    def attach(self, entity: ModelEntity) -> None:
        scope = self.begin()
        if entity.where == "transient":
            entity.where = "pending"
            entity.added_in = scope
            scope.entities.append(entity)
        else:
            entity.where = "persistent"
        for event in entity.waiting:
            self.add(event)
        entity.waiting = []

    def expunge_new(self, entity: ModelEntity) -> None:
        scope = entity.added_in
        assert scope is not None
        self._undo_insert(scope, entity)

    def expunge_persistent(self, entity: ModelEntity, unwritten: set[str]) -> None:
        """What was not written yet follows the object."""
        entity.where = "detached"
        scope = self.scope
        while scope is not None:
            for event in [each for each in scope.events if each.entity is entity]:
                if event.name in unwritten:
                    scope.events.remove(event)
                    entity.waiting.append(event)
            scope = scope.parent
        entity.waiting.sort(key=lambda each: self.order[each.name])

    def flushed(self) -> None:
        scope = self.scope
        while scope is not None:
            for entity in scope.entities:
                if entity.where == "pending":
                    entity.where = "persistent"
            scope = scope.parent

    def begin_nested(self) -> None:
        self.scope = Scope(parent=self.begin())

    def release(self) -> None:
        scope = self.scope
        assert scope is not None
        assert scope.parent is not None
        scope.parent.events += scope.events
        for entity in scope.entities:
            entity.added_in = scope.parent
        scope.parent.entities += scope.entities
        self.scope = scope.parent

    def roll_back_scope(self) -> None:
        scope = self.scope
        assert scope is not None
        for entity in list(scope.entities):
            self._undo_insert(scope, entity)
        self.scope = scope.parent

    def roll_back(self) -> None:
        while self.scope is not None:
            self.roll_back_scope()

    def commit(self) -> None:
        while self.scope is not None and self.scope.parent is not None:
            self.release()
        if self.scope is not None:
            self.committed += self.scope.events
            for entity in self.scope.entities:
                entity.added_in = None
                self.committed_entities.add(entity.name)
            self.scope = None

    def _undo_insert(self, scope: Scope, entity: ModelEntity) -> None:
        entity.where = "transient"
        entity.added_in = None
        scope.entities.remove(entity)
        current: Scope | None = self.scope
        while current is not None:
            for event in [each for each in current.events if each.entity is entity]:
                current.events.remove(event)
                entity.waiting.append(event)
            current = current.parent
        entity.waiting.sort(key=lambda each: self.order[each.name])
