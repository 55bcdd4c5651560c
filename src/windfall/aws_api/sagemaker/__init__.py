"""SageMaker training over the core: a training job is a job with a document, told in SageMaker's words.

Field names, statuses and texts of SageMaker live in this folder and nowhere else.
"""
