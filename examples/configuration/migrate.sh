#!/bin/sh
# From an installation that was set up by hand to files. Nothing but who manages an object changes.
set -eu

# What there is, as a file. Its head lists what files do not describe; what is left out besides is said on standard error.
svc config export > production.yaml

# Every object is to be taken over, and none to be changed.
svc config plan production.yaml --set production --adopt

svc config apply production.yaml --set production --adopt --revision migration --yes

# From now on the files say what there is: nothing differs.
svc config diff production.yaml --set production
svc config sets
