"""Poking: any class with ``poke(context)``, ``async def poke`` or ``poke_many``, under a time limit, in three lanes."""
