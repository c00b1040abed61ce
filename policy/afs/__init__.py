"""Apathetic Future Share: elastic sharing for short mean completion times (AFS/CoDDL, NSDI 2021)."""
