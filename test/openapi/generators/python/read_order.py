"""Reads an order with the generated client."""
import os
import sys

import openapi_client

configuration = openapi_client.Configuration(host=sys.argv[1])
configuration.access_token = os.environ["TOKEN"]
client = openapi_client.ApiClient(configuration)
order = openapi_client.OrdersApi(client).get_order(int(sys.argv[2])).data
print(order.total, order.status, int(order.created_at.timestamp() * 1000 + 0.5))
