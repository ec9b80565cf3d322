"""Pivotal token search (section 3.1.3): the tokens at which the chance of success jumps.

stage          the stage: which trajectories are searched
search         the search of one trajectory, its rollouts as requests
change_points  where a sequence of counts changes

Sampling belongs in `run/sampling`. Start reading at `stage`.
"""
