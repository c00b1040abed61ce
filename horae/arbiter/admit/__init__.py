"""What becomes of a policy's answer: guards postpone, repairs fit it to what stays, probes explore, and it is
written down."""
