import java.net.URI;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.OrdersApi;

public class ReadOrder {
  public static void main(String[] arguments) throws Exception {
    URI server = URI.create(arguments[0]);
    ApiClient client = new ApiClient().setScheme("http").setHost(server.getHost());
    client.setPort(server.getPort());
    client.setRequestInterceptor(
        request -> request.header("Authorization", "Bearer " + System.getenv("TOKEN")));
    var order = new OrdersApi(client).getOrder(Long.valueOf(arguments[1]), null, null).getData();
    System.out.println(order.getTotal() + " " + order.getStatus() + " " + order.getCreatedAt().toInstant().toEpochMilli());
  }
}
