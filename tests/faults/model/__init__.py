"""A model of lease, poke, settle and re-registration, small enough to be explored completely."""
