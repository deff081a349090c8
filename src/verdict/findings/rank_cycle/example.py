"""Two ranks that each receive first: nobody sends. Look at it with `lockscope job`."""
from mpi4py import MPI

world = MPI.COMM_WORLD
other = 1 - world.Get_rank()
halo = bytearray(8)
world.Recv(halo, source=other, tag=1)
world.Send(halo, dest=other, tag=1)
