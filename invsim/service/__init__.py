"""The contract over HTTP: a server that anyone can call, and a client end that the simulator plays against.

Only what is used is imported: ``state`` and ``messages`` need nothing, ``app`` Starlette, ``serving`` uvicorn and
``remote`` httpx (``pip install 'invsim[serve]'``).
"""
