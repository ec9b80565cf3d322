"""What came of a run, in the form that others load (docs/guides/publish.md): its policy, its adapter, its trajectories.

facts     what the warehouse knows of them
card      the model card and the data set's card
parts     the folders, planned and then written
hub       pushes folders to the Hugging Face hub
"""
