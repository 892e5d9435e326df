"""The tables of a small shop. One of them begins with the name of ours and is not ours."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    __table_args__ = (Index("ix_orders_customer", "customer"),)


class OutboxNote(Base):
    __tablename__ = "outbox_notes"
    id: Mapped[int] = mapped_column(primary_key=True)
