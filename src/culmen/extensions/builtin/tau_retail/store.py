"""A shop's database and the sixteen tools of tau-bench's retail domain, written anew from their schemas and replies.

`Store.use(name, arguments)` gives a tool's reply as a text. Rows change in place, as the tools' descriptions say.
"""

import ast
import gzip
import json
import operator
from collections import Counter
from pathlib import Path

ROWS = json.loads(gzip.decompress(Path(__file__).with_name("database.json.gz").read_bytes()))
TOOLS = json.loads(Path(__file__).with_name("tools.json").read_text(encoding="utf-8"))
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


class ActionRefused(Exception):
    """The answer of a tool that refuses an action."""


class Store:
    """Users, orders and products of one conversation."""

    def __init__(self):
        self.users, self.orders, self.products = (
            json.loads(json.dumps(ROWS[kind])) for kind in ("users", "orders", "products")
        )

    def use(self, name, arguments):
        """The reply; tools that do not exist and arguments that do not fit are answered with an error, too."""
        if name not in NAMES:
            return f"Unknown action {name}"
        try:
            found = getattr(self, name)(**arguments)
        except ActionRefused as error:
            return f"Error: {error}"
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            return f"Error: {error}"
        return found if isinstance(found, str) else json.dumps(found)

    def rows(self):
        """The rows that a reward compares."""
        return {"users": self.users, "orders": self.orders, "products": self.products}

    # Looking up

    def find_user_id_by_email(self, email):
        return self._user(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, first_name, last_name, zip):
        wanted = (first_name.lower(), last_name.lower(), zip)
        return self._user(
            lambda user: (
                (*(user["name"][key].lower() for key in ("first_name", "last_name")), user["address"]["zip"]) == wanted
            )
        )

    def get_user_details(self, user_id):
        return found(self.users, user_id, "user")

    def get_order_details(self, order_id):
        return found(self.orders, order_id, "order")

    def get_product_details(self, product_id):
        return found(self.products, product_id, "product")

    def list_all_product_types(self):
        return dict(sorted((product["name"], product["product_id"]) for product in self.products.values()))

    def calculate(self, expression):
        if not all(letter in "0123456789+-*/(). " for letter in expression):
            raise ActionRefused("invalid characters in expression")
        try:
            return str(round(float(value(ast.parse(expression, mode="eval").body)), 2))
        except (SyntaxError, ZeroDivisionError, RecursionError) as error:
            raise ActionRefused(error) from None

    def think(self, thought):
        return ""

    def transfer_to_human_agents(self, summary):
        return "Transfer successful"

    # Pending orders

    def cancel_pending_order(self, order_id, reason):
        order = self._order(order_id, "pending", "cancelled")
        if reason not in ("no longer needed", "ordered by mistake"):
            raise ActionRefused("invalid reason")
        for paid in list(order["payment_history"]):
            order["payment_history"].append(transaction("refund", paid["amount"], paid["payment_method_id"]))
            self._to_card(order, paid["payment_method_id"], paid["amount"])
        order["status"], order["cancel_reason"] = "cancelled", reason
        return order

    def modify_pending_order_address(self, order_id, **address):
        order = self._order(order_id, "pending", "modified")
        order["address"] = {key: address[key] for key in ADDRESS}
        return order

    def modify_pending_order_payment(self, order_id, payment_method_id):
        order = self._order(order_id, "pending", "modified")
        method = self._method(order, payment_method_id)
        past = order["payment_history"]
        if len(past) > 1 or past[0]["transaction_type"] != "payment":
            raise ActionRefused("there should be exactly one payment for a pending order")
        amount, before = past[0]["amount"], past[0]["payment_method_id"]
        if payment_method_id == before:
            raise ActionRefused("the new payment method should be different from the current one")
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ActionRefused("insufficient gift card balance to pay for the order")
        past += [transaction("payment", amount, payment_method_id), transaction("refund", amount, before)]
        self._to_card(order, payment_method_id, -amount)
        self._to_card(order, before, amount)
        return order

    def modify_pending_order_items(self, order_id, item_ids, new_item_ids, payment_method_id):
        order = self._order(order_id, "pending", "modified")
        difference = self._difference(order, item_ids, new_item_ids, "exchanged")
        self._afford(order, payment_method_id, difference, "the new items")
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(transaction(kind, abs(difference), payment_method_id))
        self._to_card(order, payment_method_id, -difference)
        for old, new in zip(item_ids, new_item_ids):
            item = next(item for item in order["items"] if item["item_id"] == old)
            variant = self.products[item["product_id"]]["variants"][new]
            item.update(item_id=new, price=variant["price"], options=variant["options"])
        order["status"] = "pending (item modified)"
        return order

    def modify_user_address(self, user_id, **address):
        user = found(self.users, user_id, "user")
        user["address"] = {key: address[key] for key in ADDRESS}
        return user

    # Delivered orders

    def return_delivered_order_items(self, order_id, item_ids, payment_method_id):
        order = self._order(order_id, "delivered", "returned")
        method = self._method(order, payment_method_id)
        if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise ActionRefused("payment method should be either the original payment method or a gift card")
        if Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise ActionRefused("some item not found")
        order.update(
            status="return requested", return_items=sorted(item_ids), return_payment_method_id=payment_method_id
        )
        return order

    def exchange_delivered_order_items(self, order_id, item_ids, new_item_ids, payment_method_id):
        order = self._order(order_id, "delivered", "exchanged")
        difference = round(self._difference(order, item_ids, new_item_ids, "exchanged"), 2)
        self._afford(order, payment_method_id, difference, "the price difference")
        order.update(
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
            exchange_payment_method_id=payment_method_id,
            exchange_price_difference=difference,
        )
        return order

    # What they share

    def _user(self, fits):
        for name, user in self.users.items():
            if fits(user):
                return name
        raise ActionRefused("user not found")

    def _order(self, order_id, status, done):
        order = found(self.orders, order_id, "order")
        if order["status"] != status:
            raise ActionRefused(f"non-{status} order cannot be {done}")
        return order

    def _method(self, order, payment_method_id):
        return found(self.users[order["user_id"]]["payment_methods"], payment_method_id, "payment method")

    def _difference(self, order, item_ids, new_item_ids, done):
        """The price of the new items less that of the old ones."""
        if Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise ActionRefused("some item not found")
        if len(item_ids) != len(new_item_ids):
            raise ActionRefused(f"the number of items to be {done} should match")
        difference = 0
        for old, new in zip(item_ids, new_item_ids):
            item = next(item for item in order["items"] if item["item_id"] == old)
            variant = self.products[item["product_id"]]["variants"].get(new)
            if not (variant and variant["available"]):
                raise ActionRefused(f"new item {new} not found or available")
            difference += variant["price"] - item["price"]
        return difference

    def _afford(self, order, payment_method_id, difference, what):
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < difference:
            raise ActionRefused(f"insufficient gift card balance to pay for {what}")

    def _to_card(self, order, payment_method_id, amount):
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card":
            method["balance"] = round(method["balance"] + amount, 2)


NAMES = {tool["name"] for tool in TOOLS}


def found(rows, name, kind):
    if name not in rows:
        raise ActionRefused(f"{kind} not found")
    return rows[name]


def transaction(kind, amount, payment_method_id):
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def value(node):
    """An arithmetic expression's value."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return -value(node.operand) if isinstance(node.op, ast.USub) else value(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    raise ActionRefused("this is no arithmetic")
