# Runs a server, writes down what it gets and what it answers, and holds its answers back for as long
# as there is a file called `hold`: gate.sh FOLDER COMMAND…
folder=$1
shift
tee -a "$folder/received" | "$@" | while IFS= read -r answer; do
  printf '%s\n' "$answer" >>"$folder/answered"
  while [ -e "$folder/hold" ]; do sleep 0.05; done
  printf '%s\n' "$answer"
done
