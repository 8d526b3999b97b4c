//! The official SDK on both sides.

use std::sync::Arc;
use std::sync::Mutex;

use onlyonce_mcp::Proxy;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::{ClientHandler, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{duplex, split};
use tokio::sync::mpsc;

use crate::support::{KEY, engine, rules};

/// Counts orders, and reports progress on each.
#[derive(Clone, Default)]
struct Shop {
    orders: Arc<Mutex<Vec<Value>>>,
}

impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema: JsonObject = object(json!({"type": "object", "additionalProperties": false}));
        Ok(ListToolsResult::with_all_items(vec![Tool::new(
            "order",
            "Orders an item.",
            schema,
        )]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, 1.0);
            context.peer.notify_progress(progress).await.unwrap();
        }
        let number = {
            let mut orders = self.orders.lock().unwrap();
            orders.push(json!(call.arguments));
            orders.len()
        };
        let text = ContentBlock::text(format!("order {number}"));
        Ok(CallToolResult::success(vec![text]).into())
    }
}

struct Agent {
    progress: mpsc::UnboundedSender<f64>,
}

impl ClientHandler for Agent {
    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: rmcp::service::NotificationContext<RoleClient>,
    ) {
        let _ = self.progress.send(progress.progress);
    }
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

async fn connect(
    shop: &Shop,
) -> (
    RunningService<RoleClient, Agent>,
    mpsc::UnboundedReceiver<f64>,
) {
    let (client, near_client) = duplex(4096);
    let (server, near_server) = duplex(4096);
    let shop = shop.clone();
    tokio::spawn(async move { shop.serve(server).await.unwrap().waiting().await });
    let proxy = Proxy::new(engine().await, rules());
    tokio::spawn(async move {
        let never = std::future::pending();
        proxy
            .run(split(near_client), split(near_server), never)
            .await
    });
    let (progress, heard) = mpsc::unbounded_channel();
    (Agent { progress }.serve(client).await.unwrap(), heard)
}

#[tokio::test]
async fn an_agent_that_retries_with_its_key_orders_once() {
    let shop = Shop::default();
    let (agent, mut progress) = connect(&shop).await;
    let tools = agent.list_all_tools().await.unwrap();
    assert!(
        tools[0].input_schema["properties"]
            .get("idempotencyKey")
            .is_some()
    );

    let order = json!({"item": "tea", "idempotencyKey": KEY});
    for _ in 0..5 {
        let call = CallToolRequestParams::new("order").with_arguments(object(order.clone()));
        let result = agent.call_tool(call).await.unwrap();
        assert_eq!(result.content[0].as_text().unwrap().text, "order 1");
    }

    assert_eq!(*shop.orders.lock().unwrap(), [json!({"item": "tea"})]);
    assert_eq!(progress.recv().await, Some(1.0));
}

#[tokio::test]
async fn an_agent_with_a_new_key_orders_again() {
    let shop = Shop::default();
    let (agent, _progress) = connect(&shop).await;

    for number in 1..=3 {
        let order = json!({"item": "tea", "idempotencyKey": format!("{KEY}-{number}")});
        let call = CallToolRequestParams::new("order").with_arguments(object(order));
        let result = agent.call_tool(call).await.unwrap();
        assert_eq!(
            result.content[0].as_text().unwrap().text,
            format!("order {number}")
        );
    }

    assert_eq!(shop.orders.lock().unwrap().len(), 3);
}
