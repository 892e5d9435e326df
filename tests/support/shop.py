"""A small shop: the entities that tests put into sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, Text, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sa_outbox import RecordsEvents, event_type


class Base(DeclarativeBase):
    pass


class Customer(RecordsEvents, Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str | None] = mapped_column(Text)


class Order(RecordsEvents, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str | None] = mapped_column(Text, unique=True)
    customer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    customer: Mapped[Customer | None] = relationship()
    items: Mapped[list[Item]] = relationship(cascade="all, delete-orphan", back_populates="order")


class Item(RecordsEvents, Base):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    order: Mapped[Order] = relationship(back_populates="items")


@event_type("shop.order_placed")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
