"""The table of the service."""

from __future__ import annotations

from sqlalchemy import Identity
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Parcel(Base):
    __tablename__ = "parcels"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    order_id: Mapped[int]  # not unique: nothing but the inbox keeps a second parcel away
    customer: Mapped[str]
    product: Mapped[str]
    request_id: Mapped[str | None]
