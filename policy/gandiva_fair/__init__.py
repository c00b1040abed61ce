"""Gandiva-fair (EuroSys 2020): tickets, gang-aware split stride, balancing, migration and GPU trading.

`tickets` who is entitled to what, `stride` who runs this quantum, `balance` on which node, `trading` which tenants
exchange GPU types, `policy` the whole (§3.5).
"""
