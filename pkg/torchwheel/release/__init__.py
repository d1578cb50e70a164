"""From folders of artifacts to a release: every wheel proven, or nothing is published."""
