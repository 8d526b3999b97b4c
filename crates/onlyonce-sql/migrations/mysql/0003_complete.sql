-- Completes a record inside a transaction of any program that was handed its lease. It runs with the
-- rights of its definer: a caller needs EXECUTE on it, and none on the tables. When it fails it has
-- rolled the transaction back: an error alone would leave what was done before it to be committed.
DROP PROCEDURE IF EXISTS {complete};
CREATE PROCEDURE {complete}(IN lease TEXT CHARACTER SET utf8mb4, IN status INT,
                            IN headers LONGTEXT CHARACTER SET utf8mb4, IN body LONGBLOB)
MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE the_slot  VARBINARY(32);
    DECLARE the_token VARBINARY(16);
    DECLARE the_time  BIGINT;
    DECLARE the_state CHAR(1) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE the_end   BIGINT;
    DECLARE the_names     LONGTEXT CHARACTER SET utf8mb4;
    DECLARE the_name      LONGTEXT CHARACTER SET utf8mb4;
    DECLARE the_list      LONGTEXT CHARACTER SET utf8mb4;
    DECLARE the_fields    LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
    DECLARE the_head      LONGBLOB;
    DECLARE n         INT DEFAULT 0;
    DECLARE m         INT DEFAULT 0;
    DECLARE wrong     VARCHAR(127) CHARACTER SET utf8mb4;

    IF lease IS NULL OR NOT lease REGEXP '^[0-9a-f]{96}$' OR LENGTH(lease) <> 96 THEN
        ROLLBACK;
        SIGNAL SQLSTATE 'ONCE2' SET MESSAGE_TEXT =
            'onlyonce: this is not a lease: pass on the request header Onlyonce-Lease as it came';
    END IF;
    SET headers = COALESCE(headers, '{}');
    SET body = COALESCE(body, '');
    IF status IS NULL OR status NOT BETWEEN 200 AND 599 THEN
        SET wrong = 'onlyonce: the status must be a number from 200 to 599';
    ELSEIF LENGTH(headers) > 65536 OR LENGTH(body) > 16777216 THEN
        SET wrong = 'onlyonce: the answer is too large: its headers take at most 64 KiB, its body 16 MiB';
    ELSEIF NOT JSON_VALID(headers) THEN
        SET wrong = 'onlyonce: the headers must be a JSON object';
    ELSEIF JSON_TYPE(headers) <> 'OBJECT' THEN
        SET wrong = 'onlyonce: the headers must be a JSON object';
    ELSE
        SET the_names = JSON_KEYS(headers);
        WHILE wrong IS NULL AND n < JSON_LENGTH(the_names) DO
            SET the_name = JSON_UNQUOTE(JSON_EXTRACT(the_names, CONCAT('$[', n, ']')));
            IF the_name IS NULL OR NOT the_name REGEXP '^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,1000}$' THEN
                SET wrong = 'onlyonce: a member of the headers has a name that is no header name';
            ELSE
                SET the_list = JSON_EXTRACT(headers, CONCAT('$."', the_name, '"'));
                IF JSON_TYPE(the_list) <> 'ARRAY' THEN
                    SET the_list = CONCAT('[', the_list, ']');
                END IF;
                SET m = 0;
                WHILE wrong IS NULL AND m < JSON_LENGTH(the_list) DO
                    IF JSON_TYPE(JSON_EXTRACT(the_list, CONCAT('$[', m, ']'))) <> 'STRING'
                       OR COALESCE(REPLACE(JSON_UNQUOTE(JSON_EXTRACT(the_list, CONCAT('$[', m, ']'))),
                                           CHAR(9), '') REGEXP '[[:cntrl:]]', 1) THEN
                        SET wrong = 'onlyonce: the value of a header must be a text without control characters, or a list of such texts';
                    END IF;
                    SET m = m + 1;
                END WHILE;
                SET the_fields = CONCAT(the_fields, IF(n = 0, '', ','), '"', the_name, '":', the_list);
            END IF;
            SET n = n + 1;
        END WHILE;
    END IF;
    IF wrong IS NOT NULL THEN
        ROLLBACK;
        SIGNAL SQLSTATE 'ONCE3' SET MESSAGE_TEXT = wrong;
    END IF;
    SET the_head = CONCAT('{"status":', status, ',"headers":{', the_fields, '}}');

    SET the_slot = UNHEX(LEFT(lease, 64));
    SET the_token = UNHEX(SUBSTRING(lease, 65));
    -- Locked until this transaction ends: the claim counts as alive, whatever its lease says.
    SELECT r.state, r.expires_at INTO the_state, the_end FROM {table} AS r
        WHERE r.slot = the_slot AND r.token = the_token FOR UPDATE;
    SET the_time = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) DIV 1000
        - TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) * 1000;
    IF the_state IN ('D', 'F') THEN
        ROLLBACK;
        SIGNAL SQLSTATE 'ONCE1' SET MESSAGE_TEXT =
            'onlyonce: this lease has completed its record already';
    END IF;
    IF the_state IS NULL OR the_state <> 'P' OR the_end <= the_time THEN
        ROLLBACK;
        SIGNAL SQLSTATE 'ONCE1' SET MESSAGE_TEXT =
            'onlyonce: the lease is lost: this attempt was given up, overtaken or forgotten';
    END IF;
    -- Assignments are made from left to right: later ones see the earlier ones.
    UPDATE {table} SET
        state = IF(status >= 400, 'F', 'D'),
        response = CONCAT('1P1', LPAD(LOWER(HEX(LENGTH(the_head))), 8, '0'),
                          LPAD(LOWER(HEX(LENGTH(body))), 8, '0'), the_head, body),
        bytes = LENGTH(response),
        completed_at = the_time,
        lease_until = NULL,
        revision = revision + 1,
        expires_at = the_time + tail,
        sweep_at = IF(dead = '', expires_at, GREATEST(expires_at, sweep_at))
    WHERE slot = the_slot;
END;
