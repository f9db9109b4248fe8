import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * A membership gives nothing before its holder accepts it, an account knows whether its address was proved, a link of
 * an invitation whether anybody but the mailbox saw it, and a session when its holder last proved who they are.
 */
export async function up({ db, text, integer }: Schema): Promise<void> {
  for (const table of ['partner_memberships', 'organization_memberships']) {
    for (const column of ['accepted_at', 'accepted_by', 'invited_name', 'invited_email']) {
      await db.schema.alterTable(table).addColumn(column, text).execute()
    }
    const name = sql.table(table)
    const holder = sql`from users where users.id = ${name}.user_id`
    await sql`update ${name} set invited_name = (select name ${holder}), invited_email = (select email ${holder})`.execute(
      db,
    )
    // Until now a membership counted when it was made; only who cannot sign in yet has accepted none.
    await sql`update ${name} set accepted_at = created_at, accepted_by = 'holder' where user_id in
      (select id from users where status <> 'invited' or password_hash is not null)`.execute(db)
  }

  await db.schema.alterTable('users').addColumn('email_proved_at', text).execute()
  // Who belongs somewhere was let in there by somebody who knew them; who only registered has proved nothing.
  await sql`update users set email_proved_at = created_at where is_system = 1
    or id in (select user_id from partner_memberships where accepted_at is not null)
    or id in (select user_id from organization_memberships where accepted_at is not null)`.execute(db)

  await db.schema
    .alterTable('invitations')
    .addColumn('shown', integer, (c) => c.notNull().defaultTo(1))
    .execute()
  // A link of somebody whom two tenants invited opened both.
  await sql`delete from invitations where user_id in
    (select user_id from invitations group by user_id having count(*) > 1)`.execute(db)

  await db.schema.alterTable('sessions').addColumn('proved_at', text).execute()
  await sql`update sessions set proved_at = created_at`.execute(db)
}
