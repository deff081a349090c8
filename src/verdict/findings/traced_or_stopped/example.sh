# A job stops itself, as one does in the background that reads from the terminal (SIGTTIN).
sh -c 'kill -STOP $$; echo continued' &
wait
