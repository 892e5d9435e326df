"""The tables of the shop."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Identity
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"
    __table_args__ = (CheckConstraint("in_stock >= 0"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    in_stock: Mapped[int]
    reorder_below: Mapped[int] = mapped_column(default=5)


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    product: Mapped[str]
    quantity: Mapped[int]
    state: Mapped[str] = mapped_column(default="placed")
