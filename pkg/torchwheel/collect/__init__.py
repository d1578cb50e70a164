"""From folders of artifacts to a release: every wheel proven, all of them or none published."""
