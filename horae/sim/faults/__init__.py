"""Bad days: the arbiter's own code under a schedule of faults, what must hold, schedules that shrink."""
