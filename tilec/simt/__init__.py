"""Lowering for lane machines: from tile form to thread form, driven by a capability table."""
