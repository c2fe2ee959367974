"""Whole sessions on a virtual clock and a virtual internet, under random schedules from numbered seeds.

Everything that decides is the product's own: cores, drivers, channel, links' streams, stages, engine, ring. Played are
the clock (`clock`), what lies between machines (`internet`, `links`, `rendezvous`), and the model (`model`), whose next
token is a hash of all that it was fed. `schedule` draws what happens, `world` lets it happen, `laws` says what must
hold.
"""
