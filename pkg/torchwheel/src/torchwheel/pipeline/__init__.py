"""`torchwheel wheels`: from a matrix to a folder of proven wheels and their index.

Read wheels.py, variant.py, then on_host.py or in_container.py, repair.py, records.py.
"""
