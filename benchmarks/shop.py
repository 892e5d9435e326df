"""What every benchmark of sessions needs: an entity and its table."""

from __future__ import annotations

from sqlalchemy import BigInteger, Identity, Text, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "bench_orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    customer: Mapped[str] = mapped_column(Text)


EFFECT = insert(Order).values(customer="c")
"""What a handler with a session does."""
PAYLOAD = {
    "order_id": 4711,
    "customer": "4a1bd4a6-7a1c-4b7e-9d1f-6c7fd6d1f0aa",
    "total": "129.90",
    "items": [{"sku": "A-1", "count": 2}, {"sku": "B-7", "count": 1}],
}
