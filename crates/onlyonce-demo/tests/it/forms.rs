//! The forms of the broker: built in or from a file, of fixed fields or taking any text.

use onlyonce_demo::{Demo, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Answer, Bed, database};

async fn submit(bed: &Bed, form: &str, data: Value) -> Answer {
    bed.post(&format!("/api/forms/{form}/submit"))
        .json(json!({"contextId": format!("{form}:session-1"), "formData": data}))
        .send()
        .await
}

async fn count(bed: &Bed, form: &str) -> Value {
    let path = format!("/api/forms/{form}/records");
    bed.get(&path).await.json()["count"].clone()
}

#[tokio::test]
async fn the_test_form_takes_any_further_text_and_its_key_covers_it() {
    let bed = Bed::new().await;
    let with = |phone: &str| json!({"name": "John Doe", "email": "j@example.com", "phone": phone});

    let first = submit(&bed, "test-form", with("555-0100")).await;
    let again = submit(&bed, "test-form", with("555-0100")).await;
    let other = submit(&bed, "test-form", with("555-0199")).await;
    let less = submit(&bed, "test-form", json!({"name": "John Doe"})).await;

    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(again.json()["idempotent"], true);
    assert_eq!(again.text_at("recordId"), first.text_at("recordId"));
    for another in [other, less] {
        assert_eq!(another.status, 200, "{another:?}");
        assert_ne!(another.text_at("recordId"), first.text_at("recordId"));
    }
    assert_eq!(count(&bed, "test-form").await, 3);
}

fn registration() -> Value {
    json!({
        "name": "Jane Doe", "email": "jane@example.com", "day": "friday", "seats": 2,
        "vegetarian": true,
    })
}

#[tokio::test]
async fn a_form_with_typed_fields_takes_these_and_says_what_is_wrong_with_others() {
    let bed = Bed::new().await;
    let wrong = async |field: &str, value: Value| {
        let mut data = registration();
        if value.is_null() {
            data.as_object_mut().unwrap().remove(field);
        } else {
            data[field] = value;
        }
        let answer = submit(&bed, "event-registration", data).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        let error = answer.json()["error"].clone();
        assert_eq!(error["details"][0]["field"], field);
        error["message"].as_str().unwrap().to_owned()
    };

    assert_eq!(wrong("seats", json!("two")).await, "`seats` is no number");
    assert_eq!(wrong("seats", json!(11)).await, "`seats` is more than 10");
    assert_eq!(
        wrong("email", json!("jane")).await,
        "`email` is no e-mail address"
    );
    assert_eq!(wrong("day", Value::Null).await, "`day` is required");
    assert_eq!(
        wrong("phone", json!("555")).await,
        "`phone` there is no such field in Event registration"
    );
    let made = submit(&bed, "event-registration", registration()).await;
    assert_eq!(
        made.json()["businessRecordIds"][0]["objectType"],
        "CampaignMember"
    );
    assert_eq!(count(&bed, "event-registration").await, 1);
}

#[tokio::test]
async fn the_page_of_a_form_sends_numbers_and_choices_as_what_they_are() {
    let bed = Bed::new().await;
    let page = bed.get("/forms/event-registration").await.text;
    let send = async |seats: &str| {
        let body = format!(
            "contextId=event-registration%3As&name=Jane&email=jane%40example.com&day=both\
             &seats={seats}&vegetarian=on"
        );
        bed.post("/forms/event-registration")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .text(body)
            .send()
            .await
    };

    let (first, again) = (send("3").await, send("3").await);
    let (empty, wrong) = (send("").await, send("many").await);

    for input in [
        "type=\"number\"",
        "type=\"checkbox\"",
        "<option>both</option>",
    ] {
        assert!(page.contains(input), "{page}");
    }
    assert!(first.text.contains("Form submitted successfully"));
    assert!(again.text.contains("already processed"), "{}", again.text);
    assert!(empty.text.contains("`seats` is required"), "{}", empty.text);
    assert!(
        wrong.text.contains("`seats` is no number"),
        "{}",
        wrong.text
    );
    let path = "/api/forms/event-registration/records";
    let kept = bed.get(path).await.json()["records"][0]["formData"].clone();
    assert_eq!(
        kept,
        json!({
            "name": "Jane", "email": "jane@example.com", "day": "both", "seats": 3,
            "vegetarian": true,
        })
    );
}

#[tokio::test]
async fn forms_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forms.json");
    let forms = json!([{
        "id": "bug_report", "title": "Bug <report>",
        "fields": {"what": {"type": "string", "required": true, "label": "What happened?"}},
        "makes": {"objectType": "Case", "idPrefix": "500"},
    }]);
    std::fs::write(&path, forms.to_string()).unwrap();
    let bed = Bed::with(|options| options.forms = Some(path.clone())).await;

    let made = submit(&bed, "bug_report", json!({"what": "it fell"})).await;
    let page = bed.get("/forms/bug_report").await.text;
    let built_in = submit(&bed, "test-form", json!({})).await;

    let case = &made.json()["businessRecordIds"][0];
    assert_eq!(case["objectType"], "Case");
    assert!(case["id"].as_str().unwrap().starts_with("500"), "{case}");
    assert!(page.contains("Bug &lt;report&gt;") && page.contains("What happened?"));
    assert_eq!(built_in.status, 404);
}

#[tokio::test]
async fn a_file_of_forms_that_does_not_hold_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forms.json");
    let refused = async |content: Value| {
        std::fs::write(&path, content.to_string()).unwrap();
        let options = Options {
            forms: Some(path.clone()),
            ..Options::new(database(&folder))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let Err(error) = Demo::start(&options, listener).await else {
            panic!("it started")
        };
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    };
    let form = |id: &str, prefix: &str| {
        let makes = json!({"objectType": "Case", "idPrefix": prefix});
        json!({"id": id, "title": "F", "fields": {}, "makes": makes})
    };

    let no_list = refused(json!({})).await;
    let no_id = refused(json!([form("A", "500")])).await;
    let no_prefix = refused(json!([form("a", "5-")])).await;

    assert!(no_list.contains("is no list of forms"), "{no_list}");
    assert!(no_id.contains("form `A`: an id is"), "{no_id}");
    assert!(no_prefix.contains("form `a`: idPrefix"), "{no_prefix}");
}
