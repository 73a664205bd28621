// Reads an order with the generated client.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	client "openapi"
)

func main() {
	id, _ := strconv.ParseInt(os.Args[2], 10, 64)
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: os.Args[1]}}
	token := context.WithValue(context.Background(), client.ContextAccessToken, os.Getenv("TOKEN"))
	response, _, err := client.NewAPIClient(configuration).OrdersApi.GetOrder(token, id).Execute()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(response.Data.Total, response.Data.Status, response.Data.CreatedAt.UnixMilli())
}
