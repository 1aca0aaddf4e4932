"""Views: read-only local copies of whole tables that can be queried and watched."""
