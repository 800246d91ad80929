"""Roles of heads: what they look at, what they move, and whether the model needs it.

A role is a form. That a head looks like an induction head does not say that the model uses it: closure decides that
(`circuittest.find.roles.functions`). `kinds` names the roles, `targets` says where heads of a role look, `patterns` and
`copying` score them, `spread` counts over how much heads spread their attention and their outputs.
"""
